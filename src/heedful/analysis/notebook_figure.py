"""A figure that a notebook shows; imported when one is drawn, since it needs matplotlib."""

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure of matplotlib without a window."""

    def _repr_png_(self) -> bytes:
        """Return the picture, for notebooks without `%matplotlib inline`."""
        picture = BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
