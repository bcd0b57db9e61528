"""``python -m dasfprof``: the same as the command ``dasfprof``."""

from dasfprof.cli.main import main

if __name__ == "__main__":
    main()
