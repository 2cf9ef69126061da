"""The entry point `python -m ottla.pipeline`, which is `ottla-pipeline`."""

from ottla.pipeline.main import main

if __name__ == "__main__":
    main()
