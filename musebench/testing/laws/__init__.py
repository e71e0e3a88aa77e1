"""What components promise, as laws that are held over histories; nothing here knows pytest.

`law` is what a law is and what comes of one; `search` draws histories and shortens the one that breaks a law.
Each kind has its laws, its histories (plain data) and its play, which does a history to a component.
"""
