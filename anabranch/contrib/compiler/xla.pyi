from anabranch.frontend.control_flow.xla_scopes import compile as compile
