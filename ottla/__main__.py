"""`python -m ottla` is the command `ottla`: for a debugger, which starts modules and no console scripts."""

from ottla.main import main

raise SystemExit(main())
