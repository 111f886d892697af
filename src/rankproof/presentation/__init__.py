"""What people see of a result: sentences, tables and charts as data, and one writer per format.

It knows nothing of measures, runs or commands: results describe themselves as a `Presentation`,
and everything here works on that alone, live or read back from a stored result.

result.py         Summary, Result (the contract of every result), Presentation
tables.py         columns, rows and notes as data
charts.py         four kinds of charts as data
display.py        the mix-in for results: print, notebook, frames, charts
terminal.py       writer for terminals (rich)
text_formats.py   writers for CSV, Markdown and LaTeX
html.py           writer for HTML; markup.py has its elements, svg.py draws charts
json_values.py    values as JSON has them
lead_wording.py   how a lead is worded; judged_column.py the column of judged shares
"""
