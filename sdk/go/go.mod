module evenkeel.dev/brownout

go 1.21
