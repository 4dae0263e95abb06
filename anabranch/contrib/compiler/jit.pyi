from anabranch.frontend.control_flow.xla_scopes import jit_scope as jit_scope

experimental_jit_scope = jit_scope
