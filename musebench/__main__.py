"""`python -m musebench` is the `musebench` command."""

from musebench.cli import main

if __name__ == "__main__":
    main()
