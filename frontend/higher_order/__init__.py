"""Higher-order ops of torch, whose arguments are graphs: as ordinary ops where that can be, else with compiled graphs."""
