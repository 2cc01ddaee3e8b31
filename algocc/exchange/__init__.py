"""Files of other tools, read and judged, and schedules written for them."""
