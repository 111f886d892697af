"""What a verb returns, shown: one table, rendered for terminal, notebook, CSV, Markdown and LaTeX.

tables.py     columns, rows and notes, and every way to write them
displayed.py  what results share: a table in notebooks, frames, a picture
"""
