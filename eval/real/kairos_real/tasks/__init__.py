"""All tasks, in a fixed order."""
from . import chores, code, codeipi


def all_tasks():
    tasks = [*code.tasks(), *chores.tasks(), *codeipi.tasks()]
    assert len({task.id for task in tasks}) == len(tasks)
    return tasks
