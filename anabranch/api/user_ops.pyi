from anabranch.frontend.user_ops import my_fact as my_fact
