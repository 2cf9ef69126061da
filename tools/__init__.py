"""Code that the project's own tests, benchmarks and compatibility runs share. Shipped packages never import it."""
