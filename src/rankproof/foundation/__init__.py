"""What every other package builds on, and what knows nothing of retrieval.

errors            every error a user can see: location, value, remedy
files, locks      atomic writes, refusal to overwrite inputs, one writer at a time
redaction         the one place that removes secrets and private paths from text
printable         other people's text made safe for terminals and pages
phrasing          numbers, counts and paths as sentences write them
manifest          how a result was made: version, settings, inputs by digest, seed, machine
config, database  checked YAML settings; SQLite files
interrupts        Ctrl-C while threads or servers are waited for
memory, lines     available memory; a large file read in whole lines on every core
kernels, native/  inner loops, compiled and in numpy or polars, with the same results

Nothing here imports another package of rankproof.
"""
