from anabranch.frontend.arithmetic.elementwise import bessel_i0e as bessel_i0e, bessel_i1e as bessel_i1e
from anabranch.frontend.arithmetic.math import bessel_i0 as bessel_i0, bessel_i1 as bessel_i1
