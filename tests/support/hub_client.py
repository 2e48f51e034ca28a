"""huggingface_hub in the test's own process, pointed at the stand-in whatever the environment says."""

from pathlib import Path

import pytest
from hub_server import Hub
from huggingface_hub import close_session, constants
from huggingface_hub.utils import disable_progress_bars


def use_hub(patch: pytest.MonkeyPatch, hub: Hub, home: Path, *, token: str | None = "token-of-ann") -> None:
    """Log in as the owner of a token, with a cache under `home`; forget connections to earlier servers."""
    close_session()
    disable_progress_bars()
    patch.setattr(constants, "ENDPOINT", hub.endpoint)
    patch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    )
    patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    patch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        patch.delenv(name, raising=False)
    if token is not None:
        patch.setenv("HF_TOKEN", token)


def environment(hub: Hub, home: Path, *, token: str = "token-of-ann") -> dict[str, str]:
    """The same for a process of its own."""
    return {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(home),
        "HF_TOKEN": token,
        "HF_HUB_DISABLE_XET": "1",
    }
