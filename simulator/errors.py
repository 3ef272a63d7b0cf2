"""The two ways in which a command ends without success and without a traceback.

Everything else that escapes is a bug of ours and keeps its traceback.
"""


class UserError(Exception):
    """A mistake of the user. One line that names the place and the cure; exit code 2, nothing lost."""


class RunFailure(Exception):
    """A failure of the computation or of the machine (a non-finite field, a full disk). One line; exit code 1."""
