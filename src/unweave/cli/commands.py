"""The commands by name, in the order of the help: the module that defines each, and its summary.

A module is imported when its command runs, so that the help and the version need no torch.
"""

COMMANDS = {
    "unlearn": (
        "requesting",
        "Make your own model forget part of its data: a checkpoint, a table, and what to forget.",
    ),
    "inspect": (
        "requesting",
        "Look at a request before anything runs: what matches, who is at risk, what to expect, what it costs.",
    ),
    "init": ("drafts", "Look at a model and its data, and write a request file with comments."),
    "convert": ("converting", "Turn pickled weights into safetensors, in a process of its own and with tensors only."),
    "demo": ("running", "Forget a digit in a minute: train on built-in data, unlearn in four ways, compare."),
    "methods": ("listing", "List the methods, or show the settings of one."),
    "benchmarks": ("listing", "List the benchmarks, or show the recipe and settings of one."),
    "run": (
        "running",
        "Train a benchmark's model, unlearn with one method, evaluate, and write everything to a folder.",
    ),
    "studies": ("studies", "List the named studies."),
    "study": ("studies", "Run a named study, or methods × seeds, on a benchmark into one folder."),
    "tune": (
        "tuning",
        "Tune methods with equally many trials each, judged on a held-out fifth of the training data, "
        "never on test data.",
    ),
    "report": ("reporting", "Write tables, figures and one self-contained page of a study to DIR/report."),
    "compare": (
        "reporting",
        "Compare methods over several studies, with intervals and paired tests, corrected for their number.",
    ),
    "warm": (
        "warming",
        "Compile what runs of a method use on this GPU, and write it to a file that moves with a project.",
    ),
    "submit": ("submitting", "Check where the numbers of studies come from, and put their rows on the leaderboard."),
    "standings": ("submitting", "Check every submission of a leaderboard, and print the tables."),
    "evaluate": ("auditing", "Measure a saved model: accuracies, attacks, distance to retrained models, both goals."),
    "audit": (
        "auditing",
        "Attack a saved model with every attack, including shadow models, relearning and a probe.",
    ),
    "record": ("records", "Show and check deletion records, and prove that a sample was in one."),
}
