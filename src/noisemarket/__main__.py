"""``python -m noisemarket``."""

from noisemarket.cli import main

if __name__ == "__main__":
    main()
