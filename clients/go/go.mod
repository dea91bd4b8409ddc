module vvm/warm

go 1.21
