"""`python -m kimi_serve.launcher`: the same as the console script."""

from .cli import main

if __name__ == "__main__":
    main()
