"""The local page on which people read a golden set and label its passages.

server     HTTP on 127.0.0.1; one address for each person
guard      tokens and headers: no other program or page can use it
index      all passages in memory: filters, counts, what to label next
passages   a passage as one person sees it
desk       stores labels, moves and undos
reading    evidence for a grade, recent labels, agreement
assets/    the page: HTML, CSS, JavaScript
"""
