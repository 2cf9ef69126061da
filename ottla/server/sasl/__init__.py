"""SASL mechanisms as state machines over bytes. They read no clock and no socket; what they need is passed to them."""
