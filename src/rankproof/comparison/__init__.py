"""Compare evaluations of the same queries: pairs, leaderboards and the gate for CI.

pairs                 differences of two or more runs: p-values, intervals, what ties can change
leaderboard           many runs: ranks with intervals, significant differences over all pairs
gate                  is a candidate no worse than a baseline, within a margin?
gate_inputs           the two sides of a gate: runs, stored evaluations, rows of a sweep
gate_coverage         whether the candidate was evaluated on all that the baseline was
known_ids             whether the judgments still describe the documents that a run lists

It does not evaluate runs (evaluation) and draws no random numbers itself (statistics).
"""
