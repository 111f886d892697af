"""What queries leave open: every random draw over queries is made here.

distributions.py  normal, Student's t and beta, for intervals and power
resampling.py     one bootstrap: draws made once for all columns, memory bounded
intervals.py      the interval of a mean, of a difference, and of what is neither
randomisation.py  the paired sign-flip test, Holm's correction, Tukey's HSD
flips.py          whether a random order of ties turns the sign of a difference
likeness.py       how alike two rankings are, and correlations with their intervals
agreement.py      how far raters agree beyond chance
two_phase.py      a measure as people would have it, from a sample of theirs and a judge
power.py          how many queries would tell a difference
"""
