"""What a report draws: data first (testable without drawing), then a figure, as SVG for a page or as files."""
