"""The commands of rankproof, each one typed function.

health            `doctor`: what is installed, what each command needs, what answers
showcase          `demo`: the commands on a small corpus that ships with rankproof
verification      `verify`: a result made again from its manifest, and compared
"""
