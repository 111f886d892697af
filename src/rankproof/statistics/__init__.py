"""What a sample of queries leaves open; every random draw of rankproof is made here.

Arrays in, arrays out: nothing here knows runs, judgments or files. Rows are (C, Q): one column of
values per query for each of C things that are compared, NaN where a query has no value.

distributions.py    normal, Student's t and beta, for intervals and power
groups.py           the error of a mean over queries of which some share a source
intervals.py        the interval of a mean, of a difference and of other statistics; queries needed
family.py           many differences at once: the critical value of intervals that hold together
ranks.py            ranks of means and their intervals
resampling.py       bootstrap and samples of queries
randomization.py    the paired sign-flip test, Student's, Holm's correction
flips.py            whether a random order of ties would turn the sign of a difference
rank_similarity.py  how alike two rankings are; correlations with intervals
agreement.py        how far annotators agree beyond chance
two_phase.py        a measure by annotators' labels, from a sample of them and a judge
"""
