"""The main job, shown: an agent is killed in mid-conversation and restarts from its memory."""
