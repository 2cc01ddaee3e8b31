"""Pictures of schedules: a file, a page to step through, what a notebook shows. matplotlib draws them."""

from algocc.draw.limits import View
from algocc.draw.picture import FORMS, picture
from algocc.draw.scene import Scene, scene

__all__ = ["FORMS", "Scene", "View", "picture", "scene"]
