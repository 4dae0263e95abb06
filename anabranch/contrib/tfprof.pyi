from anabranch.contrib import former_profiles

model_analyzer = former_profiles
tfprof_logger = former_profiles
