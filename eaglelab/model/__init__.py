"""What a step count costs and brings: cycle times, accept lengths, predictions, and what each cost is worth.

Pure: figures in, figures and sentences out. docs/model.md has the formulas, their sources and how far they were off.
"""
