"""From a folder of documents to a decision: `init` prepares the folder, `choose` decides.

preparing   passages, questions and configurations from a folder of documents
reading     files of several formats as documents; pdf_text in a process of its own
questions   questions that people typed, or a chat model generated
starters    golden.yaml and sweep.yaml to begin with
choosing    judge, sweep, recommend, and write a page
"""

from rankproof.projects.preparing import Prepared

__all__ = ["Prepared"]
