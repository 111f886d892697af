"""Compare evaluations of the same queries: pairs, leaderboards and the gate for CI.

verdict               Verdict: the one rule that says ahead, behind, equal or undecided
differences           all values of all pairs as columns: intervals, p-values, worst cases, labels
pairs, pair_tables    Comparison of two or more runs, and what is shown of it
leaderboard           many runs: means, ranks with intervals, distance to the best
gate                  is a candidate no worse than a baseline, within a margin?
annotated             differences with annotators' labels of some queries, a judge's of all
repeats               several runs of one system, averaged per query
gate_inputs           the two sides of a gate: runs, stored evaluations, rows of a sweep
tasks, task_gate      runs over several collections, and the gate over them
label_agreement       whether other judgments rank the same runs alike
stale_judgments       whether the judgments still describe the documents that both sides list

It does not evaluate runs (evaluation) and draws no random numbers itself (statistics).
"""
