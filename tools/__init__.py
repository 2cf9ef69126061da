"""What the project's own tests, benchmarks and compatibility runs share; never imported by the packages that ship."""
