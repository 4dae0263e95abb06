from anabranch.train.recording_hooks import ProfilerHook as ProfilerHook
