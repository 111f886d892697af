"""Golden sets: pools that a judge graded and ordered, with everything that was said kept."""
