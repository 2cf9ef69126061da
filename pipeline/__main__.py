"""`python -m pipeline` is `ottla-pipeline`."""

from pipeline.main import main

if __name__ == "__main__":
    main()
