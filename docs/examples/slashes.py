"""A layout of weights: heedful's own names with slashes for dots, as a port to JAX may write them.

heedful import weights.safetensors --plugin slashes.py --layout slashes:read -o model
"""

from heedful.interop.conversion import Conversion, Imported


def read(conversion: Conversion) -> Imported:
    """Rename the weights; `finish` infers the configuration and checks that no weight is missing."""
    for name in conversion.left:
        conversion.move(name, name.replace("/", "."))
    return conversion.finish()
