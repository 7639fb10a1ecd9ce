module try

go 1.24.0

require streamlog.org/api v@VERSION@
