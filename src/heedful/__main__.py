"""`python -m heedful` is the same as `heedful`."""

from heedful.cli.main import main

if __name__ == "__main__":
    main()
