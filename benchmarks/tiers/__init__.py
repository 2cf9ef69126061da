"""`make bench ARGS=tiers`: what remote storage does and costs (docs/TIERS.md), each row with its goal."""
