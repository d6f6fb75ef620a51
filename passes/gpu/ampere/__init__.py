"""Instructions of a warp since sm_80: copies that nobody waits for, matrices from shared memory, products."""
