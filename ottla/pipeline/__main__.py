"""`python -m ottla.pipeline` is `ottla-pipeline`."""

from ottla.pipeline.main import main

if __name__ == "__main__":
    main()
