from anabranch.contrib.learn import mnist as mnist, tables

base = tables
