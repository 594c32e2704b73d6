"""`python -m marula_server …` is `marula …`."""
import os
import sys

from . import binary


def main():
    os.execv(binary(), [binary(), *sys.argv[1:]])


if __name__ == "__main__":
    main()
