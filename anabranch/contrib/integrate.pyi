from anabranch.contrib.odes import odeint as odeint, odeint_fixed as odeint_fixed
